"""An independent evaluator of PCFTL questions: explicit trees of paths in fractions, nothing of `monitor`."""

"""Hidden states and policies with memory: exact values by the joint chain of the factual and counterfactual worlds."""

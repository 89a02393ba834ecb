"""State abstractions of `cfmon model learn` and `cfmon init`: `--bins` and `--abstraction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from monitor.cli.output import progress
from monitor.errors import ModelError, RecordingError

if TYPE_CHECKING:
    from monitor.authoring.learning.abstraction import Numbering
    from monitor.authoring.learning.bins import Reservoir
    from monitor.authoring.learning.conditions import Condition
    from monitor.authoring.learning.row_files import RowFile

PLAIN: Final = ("auto", "index", "name", "values")


def function_of(said: dict[str, Any]) -> str:
    """Return the FILE.py:NAME of `--abstraction`, or "" if it is not a function.

    Raises ModelError if the abstraction is unknown.
    """
    from monitor.authoring.learning.state_clusters import parsed_clusters  # noqa: PLC0415 - keep `cfmon --help` light

    kind = said["abstraction"]
    if kind is not None and said["bins"] is not None:
        raise ModelError("give --bins or --abstraction, not both")
    if kind is None or kind in PLAIN or parsed_clusters(kind) is not None:
        return ""
    if ":" not in kind:
        raise ModelError(
            f"--abstraction {kind}: give auto, index, name, values, kmeans:K or FILE.py:FUNCTION; for bins: --bins"
        )
    return str(kind)


def abstraction_of(
    sources: Sequence[RowFile],
    columns: tuple[str, ...],
    said: dict[str, Any],
    seed: int,
    conditions: Sequence[Condition] = (),
) -> Numbering | None:
    """Return the numbering of states that the options request, or None if the columns determine the numbering.

    Bins and clusters need a first pass over the rows. `columns`: columns of the state. `conditions`: conditions of
    labels; bins also get edges at the numbers that these conditions compare with.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.abstraction import Numbering  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.bins import edges_of, parsed_bins  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.conditions import edges_of_all  # noqa: PLC0415 - likewise
    from monitor.authoring.learning.state_clusters import centres_of, parsed_clusters  # noqa: PLC0415 - likewise

    kind = said["abstraction"]
    if said["bins"] is not None:
        specs = parsed_bins(said["bins"])
        sample = sampled(sources, columns, seed, "computing bins")
        return Numbering("bins", columns, edges_of(columns, specs, sample, edges_of_all(conditions)), sample.texts)
    if kind is None:
        return None
    if (count := parsed_clusters(kind)) is not None:
        sample = sampled(sources, columns, seed, "computing clusters")
        if text := [name for name, texts in zip(columns, sample.texts, strict=False) if texts]:
            raise ModelError(f"--abstraction {kind}: column {text[0]!r} is text; clusters are of numbers: use --bins")
        with progress("computing clusters"):
            centres = centres_of(columns, count, sample, np.random.default_rng(seed))
        return Numbering("nearest", columns, centres=centres)
    if kind in ("index", "name") and len(columns) > 1:
        raise ModelError(f"--abstraction {kind}: it takes one column of the state, not {', '.join(columns)}")
    return Numbering(kind, columns)


def sampled(sources: Sequence[RowFile], columns: tuple[str, ...], seed: int, what: str) -> Reservoir:
    """Return a sample of the rows of all files.

    Raises RecordingError if no row has a finite number or a text in every column.
    """
    import numpy as np  # noqa: PLC0415 - keep `cfmon --help` light

    from monitor.authoring.learning.bins import Reservoir  # noqa: PLC0415 - likewise

    sample = Reservoir(len(columns), np.random.default_rng(seed))
    with reading(what, sources) as bar:
        for source, before in with_sizes(sources):
            for read in source.batches(columns):
                sample.read(read.whole(), columns)
                bar.at(before + source.position)
            source.position = 0
    if not sample.seen:
        raise RecordingError(f"{sources[0].path}: no row has a finite number or a text in each of {', '.join(columns)}")
    return sample


def reading(what: str, sources: Sequence[RowFile]) -> Any:  # noqa: ANN401 - a context manager of a Bar
    """Return a progress bar over the bytes of all sources."""
    from monitor.authoring.learning.row_files import size_of  # noqa: PLC0415 - keep `cfmon --help` light

    return progress(what, total=sum(size_of(source.path) for source in sources) or None)


def with_sizes(sources: Sequence[RowFile]) -> list[tuple[RowFile, int]]:
    """Return each source with the total size of the previous sources, in bytes."""
    from monitor.authoring.learning.row_files import size_of  # noqa: PLC0415 - keep `cfmon --help` light

    sizes = [size_of(source.path) for source in sources]
    return [(source, sum(sizes[:i])) for i, source in enumerate(sources)]

"""Count recordings into a learner, and save the counts regularly, so that a killed run can continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.atomic import write_file
from monitor.authoring.learning.left_out import LeftOut, RowLimit
from monitor.cli.recorded_inputs import read_into, reading, with_sizes
from monitor.errors import ModelError, RecordingError

if TYPE_CHECKING:
    from monitor.authoring.learning.companion import CountedFile
    from monitor.authoring.learning.holdout import Holdout
    from monitor.authoring.learning.learner import Learner
    from monitor.authoring.learning.row_files import FilePosition, RowFile


def resumed(model: Path, paths: Sequence[Path]) -> tuple[Learner, CountedFile | None]:
    """Return the counts of a learned model, and the file among `paths` that was counted only partly, if there is one.

    If a partly counted file has changed or is not among `paths`, its counts are ignored. Raises ModelError if there
    are no other counts.
    """
    from monitor.authoring.learning.companion import companion_of, load_learner, load_part, part_of  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.row_files import digest_of  # noqa: PLC0415 - likewise

    whole, found = companion_of(model), load_part(part_of(model))
    base = load_learner(whole) if whole.exists() or found is None else None
    if found is not None:
        learner, part = found
        current = base is None or base.files == learner.files
        if current and part.digest in {digest_of(path) for path in paths if path.exists()}:
            return learner, part
    if base is None:
        raise ModelError(
            f"{part_of(model)}: holds a part of a file that is not among these, or has changed since; give that "
            "file, or remove this one and learn a new model with --out"
        )
    return base, None


def count_files(
    learner: Learner,
    sources: Sequence[RowFile],
    target: Path,
    holdout: Holdout,
    *,
    part: CountedFile | None,
    limit: RowLimit,
) -> tuple[int, int]:
    """Count the files that were not counted before; return the number of these files, and of all other files.

    The counts are saved after each file, and several times within a large file. `part`: the partly counted file, which
    is continued first. Raises RecordingError if more rows were left out than the `limit` allows; then the old counts
    are restored.
    """
    from monitor.authoring.learning.companion import CountedFile, companion_of, part_of, save_learner  # noqa: PLC0415 - keep `cfmon --help` light
    from monitor.authoring.learning.row_files import START, FileRows, digest_of  # noqa: PLC0415 - likewise

    known = set(learner.files)
    whole = companion_of(target)
    kept = whole.read_bytes() if whole.exists() else None
    earlier = LeftOut() if part is not None else LeftOut.of(learner.left_out.document())
    digests = [digest_of(source.path) for source in sources]
    used = learner.roles.used
    places = {} if part is None else {part.digest: part.place}
    pending = [
        (FileRows(source, used, places.get(digest, START)), before, digest)
        for (source, before), digest in zip(with_sizes(sources), digests, strict=True)
    ]
    pending.sort(key=lambda each: part is None or each[2] != part.digest)
    with reading("counting", sources) as bar:
        for place, (rows, before, digest) in enumerate(pending):
            if digest in learner.files:
                continue

            def keep(place: FilePosition, digest: str = digest) -> None:
                save_learner(learner, part_of(target), CountedFile(digest, place))

            later = ((each, other) for each, _, other in pending[place + 1 :] if other not in learner.files)
            after, following = next(later, (None, ""))
            try:
                joined = read_into(learner, rows, bar, before, holdout, after=after, keep=keep)
            except RecordingError:
                part_of(target).unlink(missing_ok=True)  # after a correction, the file has another digest
                raise
            learner.files.append(digest)
            if joined:
                save_learner(learner, part_of(target), CountedFile(following, START))
                save_learner(learner, whole)
            else:
                save_learner(learner, whole)
                part_of(target).unlink(missing_ok=True)
    try:
        learner.left_out.refuse(limit, str(target), earlier)
    except RecordingError:
        if kept is None:
            whole.unlink(missing_ok=True)
        else:
            write_file(whole, kept)
        raise
    new = len(set(learner.files) - known)
    return new, len(sources) - new

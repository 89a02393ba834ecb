"""Build hook of hatchling: the modules in COMPILED become machine code, beside their sources (CONTRIBUTING.md).

Each is an ordinary Python module; the `.pxd` file beside it has the C types. Run as a program it compiles what has
changed. Without a compiler, or with MONITOR_UNCOMPILED=1, nothing is compiled: the sources run as they are, some
hundred times slower, and `cfmon run` says so.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent
COMPILED: Final = tuple(
    sorted(str(file.with_suffix(".py").relative_to(ROOT)) for file in (ROOT / "monitor").rglob("*.pxd"))
)
"""The modules with C types beside them."""
DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # annotations are for readers and type checkers; C types are in the .pxd files
    "infer_types": True,
    "boundscheck": os.environ.get("MONITOR_BOUNDS") == "1",
    "initializedcheck": False,
    "show_performance_hints": False,
}
NUMERICAL: Final = ("monitor/causal/", "monitor/exact/", "monitor/hidden/", "monitor/sampled/")
"""Where division by zero gives infinity, as in NumPy, and indices are never negative. There 1 / 2 is 0 (Cython has one
switch for both), and `x[-1]` raises IndexError, also of a list."""
FLAGS: Final = ["-O1" if DIRECTIVES["boundscheck"] else "-O3", "-ffp-contract=off", "-fwrapv", "-g0", "-w"]
"""-O1 if every index is checked: that code runs the fast tests once, and compiles in half the time. No fused
multiplication and addition, so that all machines give the same bits; integers wrap around in hashes. What gcc says of
generated code is no news."""
MACROS: Final = [("CYTHON_USE_TYPE_SPECS", "1")]
"""Classes can be changed at run time, as those of Python: tests replace methods."""
SHARED, SHARED_SOURCE = "monitor._cyutility", "monitor/_cyutility.c"
"""Cython's views of memory, once for all modules: that saves two fifths of the time to compile, and half the size."""


def compile_modules() -> None:
    """Compile what has changed since the last time, in place, or all under other settings; raises what compilers do."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    os.chdir(ROOT)
    sources = {source.removesuffix(".py").replace("/", "."): source for source in COMPILED} | {SHARED: SHARED_SOURCE}
    extensions = [
        Extension(name, [source], extra_compile_args=FLAGS, define_macros=MACROS) for name, source in sources.items()
    ]
    workers = os.cpu_count() or 1
    settings = hashlib.sha256(f"{version('cython')} {DIRECTIVES} {Path(__file__).read_text()}".encode()).hexdigest()
    stamp = ROOT / "build/settings"
    anew = not stamp.exists() or stamp.read_text() != settings
    made: list[Any] = []
    for numerical in (True, False):
        made += cythonize(  # type: ignore[no-untyped-call] # Cython has no types
            [each for each in extensions if each.sources[0].startswith(NUMERICAL) == numerical],
            compiler_directives=DIRECTIVES | {"cdivision": numerical, "wraparound": not numerical},
            shared_utility_qualified_name=SHARED,
            build_dir="build/c",
            nthreads=workers,
            force=anew,
            quiet=True,
        )
    command = build_ext(Distribution({"ext_modules": made}))
    command.inplace, command.parallel, command.build_temp, command.force = True, workers, "build/o", anew
    command.ensure_finalized()
    command.run()
    stamp.write_text(settings)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a program, where hatchling is not needed
    pass
else:

    class CompilingHook(BuildHookInterface[Any]):
        """Puts the machine code into the wheel, or beside the sources of an editable installation."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's protocol
            """Compile; a wheel without machine code is one for all platforms."""
            if self.target_name != "wheel" or os.environ.get("MONITOR_UNCOMPILED") == "1":
                return
            try:
                compile_modules()
            except Exception as error:  # noqa: BLE001 - whatever a missing compiler or header raises
                self.app.display_warning(f"not compiled, so it will be very slow: {error}; install gcc and python3-dev")
                return
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            suffix = sysconfig.get_config_var("EXT_SUFFIX")
            build_data["artifacts"] += [str(Path(source).with_suffix(suffix)) for source in (*COMPILED, SHARED_SOURCE)]


if __name__ == "__main__":
    compile_modules()

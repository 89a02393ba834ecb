"""`python -m monitor` is `cfmon`."""

from monitor.cli import main

main()

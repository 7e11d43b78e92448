"""`python -m ascendport`."""

from ascendport.cli import main

main()

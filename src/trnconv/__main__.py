"""`python -m trnconv`: the command line."""

from trnconv.cli import main

if __name__ == "__main__":
    main()

"""`python -m localspec`: the same as the `localspec` command."""

from localspec.cli import main

if __name__ == "__main__":
    main()

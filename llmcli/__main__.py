"""`python -m llmcli`, for when the script's folder is not on the PATH."""

from llmcli.cli.app import main

main()

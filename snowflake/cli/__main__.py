"""``python -m snowflake.cli`` is the command ``snowflake``."""

from snowflake.cli import entry

entry()

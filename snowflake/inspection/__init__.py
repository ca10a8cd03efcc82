"""What Snowflake makes of a model: its parts, its graph, what drives what, and what is odd about it."""

"""Measure policies: episodes from shared start states, statistics, tables, figures, zero-shot transfer."""

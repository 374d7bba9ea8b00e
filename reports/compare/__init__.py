"""A comparison of finished runs: tables, figures, files and page."""

"""A screen: table, figures, files and page."""

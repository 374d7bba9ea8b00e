"""Reports: what a person sees of a result: tables, figures, files."""

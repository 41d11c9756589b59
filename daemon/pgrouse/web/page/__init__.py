"""The parts that pages have in common: templates, views, forms, details."""

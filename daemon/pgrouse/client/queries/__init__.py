"""How tables and views are read, and written where no function does it: a module per noun."""

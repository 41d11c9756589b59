"""What only the pipeline reads and writes: ranges of rows, columns, the stage of bulk publishing."""

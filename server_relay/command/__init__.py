"""`segue relay …`: each command with its own arguments."""

"""Studies: many training runs as cells that can be stopped, continued and spread over processes or machines."""

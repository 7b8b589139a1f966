"""Programs that use Segue: the command line and the demo."""

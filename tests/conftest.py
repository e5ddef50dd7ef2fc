"""What all tests need."""

import signal

# A shell has its background jobs ignore Ctrl-C, and their children too; tests that interrupt need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

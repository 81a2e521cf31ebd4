"""What the mount tests share: a mount that cleans up after itself, the data, and third-party readers."""

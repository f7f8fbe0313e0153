"""The corpus: real reports of ports that went wrong, each as a small case that the tool is run on."""

"""From a trained run to translations and scores."""

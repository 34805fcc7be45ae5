"""Dead letters and what people do with them: show, replay, load back."""

"""Fine-tuning: a pretrained encoder and labelled texts, tags or questions -> scores and models."""

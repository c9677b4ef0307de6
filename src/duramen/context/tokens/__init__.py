"""Token counters: an estimate without a tokenizer, tokenizers of models, providers' own counts."""

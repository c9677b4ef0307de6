"""Language models behind the `Model` port."""

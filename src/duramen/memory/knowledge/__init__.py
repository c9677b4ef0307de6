"""Governed knowledge: policies, procedures, proposals, persona, consolidation, write-back."""

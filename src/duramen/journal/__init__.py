"""Events, codec, hash chain, sealing and folding. Pure: the world comes in through `duramen.ports`."""

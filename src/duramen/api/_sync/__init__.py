"""The public classes for blocking code. Each method runs its coroutine of _async/ to the end."""

"""The sections of ``docs/performance.md``: what is measured for them, and how it is told."""

"""Which name does each monkeypatch of vllm-ascend land on, and does anything read it there?

Static: files are parsed, never imported.
"""

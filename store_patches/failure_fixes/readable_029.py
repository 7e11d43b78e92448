class MemcacheBackend:
    def batch_is_readable(self, keys: list[str]) -> list[bool]:
        """Return whether each key's object is written and has an address.

        Of an answer of another length nothing can be told, which is an error here.
        """
        if self._lazy_init and not self._store_initialized:
            return [False] * len(keys)
        infos = self._stored_key_info(keys)
        if len(infos) != len(keys):
            raise BatchResultShapeError(
                f"MemCache gave {len(infos)} key infos for {len(keys)} keys"
            )
        return [self._is_readable(info) for info in infos]

    @staticmethod
    def _is_readable(info: Any) -> bool:
        if info is None:
            return False
        try:
            gvas = info.gva_list()
            return int(info.size()) > 0 and len(gvas) > 0 and int(gvas[0]) > 0
        except (AttributeError, IndexError, TypeError, ValueError) as exc:
            raise BatchResultShapeError("MemCache gave key metadata that cannot be read") from exc

class LookupKeyServer:
    def _block_hashes(self, frames: list):
        return [
            BlockHash(block_hash_to_bytes(block_hash)) for block_hash in self.decoder.decode(frames)
        ]

class LookupKeyServer:
    def _block_hashes(self, frames: list):
        return self.decoder.decode(frames)

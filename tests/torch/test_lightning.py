"""Lightning: takes the DataLoader as it is; a data module makes checkpoints exact, in mid-epoch and at its end."""

import pytest
from ranks import check_epoch, run_ranks

pytest.importorskip("lightning")

SCRIPT = """
import json, sys
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from corgipile.torch import CorgiPileDataset

out, path, folder = sys.argv[1:]

def make():
    return CorgiPileDataset(path, batch_size=64, columns=["row"], seed=1)

class Rows(lightning.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.dataset = make()

    def train_dataloader(self):
        return DataLoader(self.dataset, batch_size=None)

    def state_dict(self):
        return self.dataset.state_dict()

    def load_state_dict(self, state):
        self.dataset.load_state_dict(state)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), {}

    def training_step(self, batch, index):
        self.seen.setdefault(self.current_epoch, []).append(batch["row"].tolist())
        return self.layer(batch["row"][:, None].float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)

def fit(data, resume=None, callbacks=(), **settings):
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", logger=False, callbacks=[*callbacks], enable_progress_bar=False,
        enable_checkpointing=bool(callbacks), enable_model_summary=False, **settings)
    model = Model()
    trainer.fit(model, data, ckpt_path=resume)
    return [model.seen.get(epoch, []) for epoch in range(trainer.max_epochs)]

workers = DataLoader(make(), batch_size=None, num_workers=1, persistent_workers=True)
found = {
    "workers": fit(workers, max_epochs=2),
    "limited": fit(DataLoader(make(), batch_size=None), max_epochs=2, limit_train_batches=3),
    "whole": fit(Rows(), callbacks=[
        ModelCheckpoint(folder, "step{step}", save_top_k=-1, every_n_train_steps=4, auto_insert_metric_name=False),
        ModelCheckpoint(folder, "end{epoch}", save_top_k=-1, auto_insert_metric_name=False),
    ], max_epochs=3),
}
for resume in ("step4", "step8", "end0"):
    found[resume] = fit(Rows(), f"{folder}/{resume}.ckpt", max_epochs=3)
with open(out, "w") as file:
    json.dump(found, file)
torch.distributed.destroy_process_group()
"""


def test_every_row_is_visited_once_also_after_a_checkpoint(path, tmp_path):
    ranks = run_ranks(SCRIPT, tmp_path, path, tmp_path / "checkpoints")
    for epoch in range(3):
        check_epoch([found["whole"][epoch] for found in ranks], 1000)
    for found in ranks:
        whole = found["whole"]
        assert whole[0] != whole[1] != whole[2]
        assert found["workers"] == whole[:2]
        assert found["limited"] == [batches[:3] for batches in whole[:2]]
        assert found["step4"] == [whole[0][4:], *whole[1:]]
        assert found["end0"] == found["step8"] == [[], *whole[1:]]

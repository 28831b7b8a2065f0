"""The files for clusters: valid, and each process finds its place in the cluster.

cluster/kubernetes.json and cluster/sbatch.json beside this file say against what they
are checked, and where that is from.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from manygpu.processes.cluster import cluster_resolver
from manygpu.processes.launch import PREEMPTED
from workshop.pages import ROOT

SLURM, MANIFESTS = ROOT / "cluster" / "slurm.sh", ROOT / "cluster" / "kubernetes.yaml"
AGAINST = Path(__file__).with_name("cluster")
SCHEMA = json.loads((AGAINST / "kubernetes.json").read_text(encoding="utf-8"))
SBATCH = json.loads((AGAINST / "sbatch.json").read_text(encoding="utf-8"))["options"]
FORMS = {  # of the values of options
    **dict.fromkeys(SBATCH.split(), r"\S+"),
    **dict.fromkeys(("nodes", "ntasks-per-node", "cpus-per-task"), r"[1-9]\d*"),
    "gpus-per-node": r"([a-z]\w*:)?[1-9]\d*",
    "distribution": r"block|cyclic|arbitrary|plane=\d+",
    "time": r"\d+|\d+:\d\d|(\d+-)?\d+:\d\d:\d\d|\d+-\d+(:\d\d)?",
}


def manifests() -> dict[str, dict]:
    """Each manifest, by its kind."""
    found = yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8"))
    return {manifest["kind"]: manifest for manifest in found}


def wrong_in(manifest: dict) -> list[str]:
    """What the schema of its kind and version has against a manifest."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    api = f"{group.removesuffix('.k8s.io') or 'core'}.{version}"
    name = f"io.k8s.api.{api}.{manifest['kind']}"
    if name not in SCHEMA["$defs"]:
        return [f"no schema of {name}"]
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    errors = Draft202012Validator(schema).iter_errors(manifest)
    return [f"{error.json_path}: {error.message}" for error in errors]


KINDS = ["Service", "PersistentVolumeClaim", "NetworkPolicy", "Job"]


def test_the_manifests_are_valid():
    Draft202012Validator.check_schema(SCHEMA)
    found = manifests()
    assert {kind: wrong_in(found[kind]) for kind in KINDS} == dict.fromkeys(KINDS, [])


def test_the_parts_of_the_manifests_fit_together():
    service, claim, policy, job = (manifests()[kind] for kind in KINDS)
    spec, template = job["spec"], job["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert spec["completions"] == spec["parallelism"]
    (container,), volumes = template["spec"]["containers"], template["spec"]["volumes"]
    mounts = container["volumeMounts"]
    assert [m["name"] for m in mounts] == [v["name"] for v in volumes]
    own = {v["name"]: v for v in volumes}["checkpoints"]["persistentVolumeClaim"]
    assert own["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]  # pods of all machines
    assert template["spec"]["securityContext"]["fsGroup"] == 1000  # may write there


def test_a_pod_has_several_gpus_of_one_machine_and_its_process_drives_them():
    """A pod has GPUs of one machine only, and NCCL needs the memory that they share."""
    (container,) = manifests()["Job"]["spec"]["template"]["spec"]["containers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert int(gpus) > 1 and variables["MANYGPU_DEVICES"] == gpus
    assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]


def counted(job: dict, status: int, conditions: tuple[str, ...] = ()) -> bool:
    """Whether the Job counts the failure of a pod: the first rule that fits says so."""
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        exits = rule.get("onExitCodes", {"values": []})
        wanted = [one["type"] for one in rule.get("onPodConditions", [])]
        if status in exits["values"] or set(wanted) & set(conditions):
            return rule["action"] == "Count"
    return True


def test_who_was_asked_to_end_is_started_again_and_a_failure_only_so_often():
    job = manifests()["Job"]
    assert not counted(job, PREEMPTED)
    assert not counted(job, 137, ("DisruptionTarget",))
    assert counted(job, 1) and counted(job, 137)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["backoffLimit"] >= spec["completions"]  # one death fails all of them
    assert pod["restartPolicy"] == "Never"  # a failure policy needs it
    (rule,) = [r for r in spec["podFailurePolicy"]["rules"] if "onExitCodes" in r]
    assert rule["onExitCodes"]["operator"] == "In"
    assert rule["onExitCodes"]["containerName"] == pod["containers"][0]["name"]
    assert spec["activeDeadlineSeconds"] > pod["terminationGracePeriodSeconds"] > 30


def test_each_pod_tells_the_script_its_place(tmp_path):
    """The command of the manifest itself, as each pod would run it."""
    service, job = manifests()["Service"], manifests()["Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    code = "import os, sys; print(os.environ['TF_CONFIG']); print(sys.argv[1:])"
    (tmp_path / "script.py").write_text(code, encoding="utf-8")
    count, port = job["spec"]["completions"], service["spec"]["ports"][0]["port"]
    pods, domain = job["metadata"]["name"], service["metadata"]["name"]
    hosts = [f"{pods}-{i}.{domain}:{port}" for i in range(count)]
    variables = {one["name"]: one["value"] for one in container["env"]}
    for index in range(count):
        command = [sys.executable, *container["command"][1:], *container["args"], "--x"]
        own = {**os.environ, **variables, "JOB_COMPLETION_INDEX": str(index)}
        told = {"capture_output": True, "encoding": "utf-8", "check": True}
        ran = subprocess.run(command, cwd=tmp_path, env=own, **told)
        config, words = ran.stdout.splitlines()
        place = {"type": "worker", "index": index}
        assert json.loads(config) == {"cluster": {"worker": hosts}, "task": place}
        assert words == "['--x']"


def test_the_options_of_the_job_file_are_sbatchs():
    """All before its first command: sbatch reads no others."""
    head, _, commands = SLURM.read_text(encoding="utf-8").partition("\nset ")
    assert "#SBATCH" not in commands
    found = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", head, flags=re.M))
    assert len(found) == head.count("\n#SBATCH")
    for name, value in found.items():
        assert re.fullmatch(FORMS[name], value), name
    assert found["ntasks-per-node"] == found["gpus-per-node"]
    assert found["distribution"] == "block"
    assert {"nodes", "time", "cpus-per-task"} <= set(found)


bash = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


def job(*words: object) -> subprocess.CompletedProcess:
    told = {"capture_output": True, "encoding": "utf-8", "check": False}
    return subprocess.run(["bash", SLURM, *words], **told)


@bash
@pytest.mark.parametrize("cpus", ["3", None])
def test_the_job_runs_the_script_with_its_arguments_and_ends_as_it_does(
    tmp_path, monkeypatch, cpus
):
    """With a stand-in for srun, which says what it was told."""
    srun = tmp_path / "srun"
    says = 'printf "%s\\n" "$@" "$MANYGPU_DEVICES"; exit 7'
    srun.write_text(f"#!/bin/bash\n{says}\n", encoding="utf-8")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in ("MANYGPU_DEVICES", "PYTHON", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    if cpus:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", cpus)
    script = tmp_path / "a script.py"
    script.touch()
    ran = job(script, "--name", "a b")
    told = ran.stdout.splitlines()
    assert ran.returncode == 7
    assert {"--kill-on-bad-exit=1", f"--cpus-per-task={cpus or 1}"} <= set(told)
    assert told[-5:] == ["python3", str(script), "--name", "a b", "1"]


@bash
@pytest.mark.parametrize("words", [[], ["absent.py"]])
def test_a_job_without_its_script_says_so(words):
    ran = job(*words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"'{''.join(words)}' is no file" in ran.stderr


def test_alone_there_is_no_cluster_and_no_tensorflow(monkeypatch):
    for name in ("TF_CONFIG", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    assert cluster_resolver() is None

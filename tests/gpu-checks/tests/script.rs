//! The script where there is nothing to measure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use gpu_checks::programs::{Said, command, run};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

/// A directory with programs that stand in for NVIDIA's and for ours.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(programs: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in programs {
            let program = directory.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Runs `tests/gpu`; nothing of this machine's own driver is found.
    fn script(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
        let mut program = command(Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu"));
        program.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", self.path()));
        program
            .env("OUT", self.path())
            .env("NVIDIA_DIRECTORIES", "/nowhere")
            .env_remove("PILLION_GPU_CHECKS");
        program.envs(variables.iter().copied());
        run(program, "", Duration::from_secs(30)).unwrap()
    }
}

const ONE_GPU: (&str, &str) = ("nvidia-smi", "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'");

#[test]
fn without_a_gpu_it_says_so_in_one_sentence() {
    let said = Bench::new(&[("nvidia-smi", "echo 'No devices were found'")]).script(&[], &[]);
    let expected = "skipped: there is no NVIDIA GPU here: nvidia-smi lists none\n";
    assert_eq!((said.code, said.out.as_str()), (Some(2), expected), "{}", said.errors);
}

#[test]
fn without_a_gpu_nothing_is_cut() {
    let said = Bench::new(&[("nvidia-smi", "echo 'No devices were found'")]).script(&["mig"], &[]);
    let expected = "skipped: there is no NVIDIA GPU here: nvidia-smi lists none\n";
    assert_eq!((said.code, said.out.as_str()), (Some(2), expected), "{}", said.errors);
    let smi = "case \"$*\" in -L) echo 'GPU 0: X (UUID: GPU-1)';; *uuid*) echo GPU-1;; *name*) echo 'NVIDIA H100';;\n\
               *) exit 1;; esac";
    let program = env!("CARGO_BIN_EXE_pillion-gpu-checks");
    let bench = Bench::new(&[("nvidia-smi", smi)]);
    let said = bench.script(&["mig"], &[("PILLION_GPU_CHECKS", program)]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.out.contains("skipped: the GPU is not cut: "), "{said:?}");
    // What a run that was ended has left is taken away, or it is said how.
    let ended = Bench::new(&[
        ONE_GPU,
        ("checks", "if [ $1 = undo ]; then echo undone $3; else touch $5/mig.json; exit 9; fi"),
    ]);
    let said = ended.script(&["mig"], &[("PILLION_GPU_CHECKS", &format!("{}/checks", ended.path()))]);
    assert!(said.out.contains("undone ") && said.errors.contains("ended with 9"), "{said:?}");
}

#[test]
fn a_wrong_argument_is_no_measurement() {
    let said = Bench::new(&[("nvidia-smi", "exit 1")]).script(&["many"], &[]);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.errors, "error: KILLS is a number; found 'many'\n");
}

#[test]
fn programs_off_the_path_are_found() {
    let nvidia = Bench::new(&[ONE_GPU, ("nvidia-cuda-mps-control", "true")]);
    let ours = Bench::new(&[("checks", "echo \"$@\"; exit 3")]);
    let program = format!("{}/checks", ours.path());
    let said =
        ours.script(&["2"], &[("NVIDIA_DIRECTORIES", &nvidia.path()), ("PILLION_GPU_CHECKS", &program)]);
    let control = format!("--control {}/nvidia-cuda-mps-control", nvidia.path());
    assert!(said.out.contains(&control) && said.out.contains("--kills 2 "), "{said:?}");
    assert_eq!(said.code, Some(3), "what the program says is handed on");
}

#[test]
fn a_program_that_was_built_before_is_taken_where_none_can_be_built() {
    let built = Bench::new(&[]);
    std::fs::create_dir(built.0.path().join("release")).unwrap();
    let program = built.0.path().join("release/pillion-gpu-checks");
    std::fs::write(&program, "#!/bin/sh\necho taken\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let offline = Bench::new(&[ONE_GPU, ("cargo", "echo 'no network' >&2; exit 101")]);
    let said = offline.script(&[], &[("CARGO_TARGET_DIR", &built.path())]);
    assert_eq!((said.code, said.out.lines().next()), (Some(0), Some("taken")), "{said:?}");
    assert!(said.errors.contains("cannot build: taking "), "{said:?}");
    let said = offline.script(&[], &[("CARGO_TARGET_DIR", "/nowhere/at/all")]);
    assert_eq!(said.code, Some(1));
    assert!(said.errors.contains("cannot be built, and there is none in target/"), "{said:?}");
    assert_eq!(offline.script(&["build"], &[]).code, Some(1), "only building is no success either");
}

#[test]
fn where_cuda_does_not_work_nothing_was_measured_and_that_is_told() {
    let smi = "case \"$*\" in -L) echo 'GPU 0: X (UUID: GPU-1)';; *uuid*) echo GPU-1;; *name*) echo 'NVIDIA H100';;\n\
               *) exit 1;; esac";
    let bench = Bench::new(&[("nvidia-smi", smi), ("nvidia-cuda-mps-control", "echo no >&2; exit 1")]);
    // A driver that is there has no such GPU.
    let said = bench.script(&["1"], &[("PILLION_GPU_CHECKS", env!("CARGO_BIN_EXE_pillion-gpu-checks"))]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.errors.contains("nothing was measured"), "{said:?}");
    assert!(said.out.contains("skipped: Readings: CUDA does not work"), "{said:?}");
    let report = std::fs::read_dir(bench.0.path()).unwrap().flatten().map(|entry| entry.path());
    let report = report.filter(|path| path.extension().is_some_and(|it| it == "md")).collect::<Vec<_>>();
    assert_eq!(report.len(), 1, "it is written all the same");
    let text = std::fs::read_to_string(&report[0]).unwrap();
    assert!(text.contains("| GPU | NVIDIA H100 |"), "{text}");
    assert!(text.contains("## CUDA\n\nFAILED: a client has no device: "), "{text}");
    assert!(text.contains("## Energy\n\nSkipped: "), "{text}");
    assert!(!text.contains("/nvidia-smi"), "no path stands in it: {text}");
}

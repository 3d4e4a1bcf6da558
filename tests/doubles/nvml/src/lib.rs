//! A double of `libnvidia-ml.so.1` on top of the simulated devices: whoever loads it finds the devices of this node's
//! `pillion-simulated-device`, in NVML's words. Name it `libnvidia-ml.so.1` where a program looks for that.
//!
//! Strict: it refuses whatever the real library refuses, and some of what that would only answer wrongly (two GPM samples
//! within 100 ms). What it is to do wrong stands in a control file (see `control`). It converts the simulated device's
//! integrals by code of its own: nothing here is shared with what it tests.
//!
//! Source of the rules: nvml.h of driver branch R580.

#![expect(unsafe_code, reason = "plays a C library")]

mod control;
mod device;
mod event;
mod gpm;
mod library;
mod mig;
mod model;
mod pointer;
mod process;
mod system;

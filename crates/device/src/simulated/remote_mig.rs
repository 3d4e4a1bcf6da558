//! MIG of the devices of a driver process, for the agent, and a monitor that keeps one open.

use super::remote::{AGENT_DEADLINE, Line, Simulated, unexpected};
use super::wire::{Reply, Request};
use crate::mechanism::mig::{Access, Holder, Instance, Layout};
use crate::{DeviceError, MigControl};
use pillion_core::mig::{Geometry, Slot};
use std::path::PathBuf;

impl MigControl for Simulated {
    fn geometry(&mut self, index: u32) -> Result<Geometry, DeviceError> {
        match self.ask(&Request::MigGeometry { index })? {
            Reply::MigGeometry(geometry) => Ok(geometry),
            other => unexpected(&other),
        }
    }

    fn needs_reset(&mut self, index: u32) -> Result<bool, DeviceError> {
        match self.ask(&Request::MigNeedsReset { index })? {
            Reply::MigNeedsReset(needs_reset) => Ok(needs_reset),
            other => unexpected(&other),
        }
    }

    fn layout(&mut self, index: u32) -> Result<Layout, DeviceError> {
        match self.ask(&Request::MigLayout { index })? {
            Reply::MigLayout(layout) => Ok(layout),
            other => unexpected(&other),
        }
    }

    fn make(&mut self, index: u32, slot: Slot) -> Result<Instance, DeviceError> {
        match self.ask(&Request::MakeInstance { index, slot })? {
            Reply::Instance(instance) => Ok(instance),
            other => unexpected(&other),
        }
    }

    fn destroy(&mut self, index: u32, gpu_instance_id: u32) -> Result<(), DeviceError> {
        self.done(&Request::DestroyInstance { index, id: gpu_instance_id })
    }

    fn set_mode(&mut self, index: u32, is_on: bool) -> Result<(), DeviceError> {
        self.done(&Request::SetMigMode { index, is_on })
    }

    fn give(&mut self, index: u32, ways: &[(Instance, Access)]) -> Result<(), DeviceError> {
        ways.iter().try_for_each(|(instance, to)| {
            self.done(&Request::GiveInstance { index, id: instance.gpu_instance_id, to: *to })
        })
    }

    fn holders(&mut self, index: u32) -> Result<Vec<Holder>, DeviceError> {
        match self.ask(&Request::MigHolders { index })? {
            Reply::Holders(holders) => Ok(holders),
            other => unexpected(&other),
        }
    }
}

/// A program that keeps a device open without being a process on it, as monitors do, for as long as this value lives: what the
/// driver then refuses is for tests.
#[derive(Debug)]
pub struct Monitor {
    _line: Line,
}

impl Monitor {
    /// Opens the device.
    ///
    /// # Errors
    /// As `Backend::read`.
    pub fn open(socket: impl Into<PathBuf>, index: u32) -> Result<Self, DeviceError> {
        let mut line = Line::new(socket.into(), AGENT_DEADLINE);
        line.done(&Request::Hold { index })?;
        Ok(Self { _line: line })
    }
}

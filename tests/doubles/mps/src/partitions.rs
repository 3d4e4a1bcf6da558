//! The static SM partitions of one device, as NVIDIA's document of CUDA 13.1 has them: whole chunks, each of one partition
//! at most; none is removed while it has clients. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The compute units of one chunk, from Hopper on.
const CHUNK_UNITS: u32 = 8;

struct Partition {
    name: String,
    chunks: BTreeSet<u32>,
}

/// What the device can give out, and to whom it did.
pub struct Partitions {
    device: String,
    units: u32,
    given: Vec<Partition>,
    made: u32,
}

impl Partitions {
    /// Of a device with so many compute units: what does not fill a chunk is nobody's.
    pub fn new(device: &str, units: u32) -> Self {
        Self { device: device.to_owned(), units, given: Vec::new(), made: 0 }
    }

    fn free(&self) -> impl Iterator<Item = u32> {
        let is_free = |chunk: &u32| !self.given.iter().any(|partition| partition.chunks.contains(chunk));
        (0..self.units / CHUNK_UNITS).filter(is_free)
    }

    /// Whether a client may name a partition so.
    pub fn is_known(&self, whole_name: &str) -> bool {
        let name = whole_name.strip_prefix(&self.device).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| self.given.iter().any(|partition| partition.name == name))
    }

    /// `sm_partition add`: what is printed, also of a failure.
    pub fn add(&mut self, device: &str, count: usize) -> String {
        let chunks: BTreeSet<u32> = self.free().take(count).collect();
        if device != self.device || count == 0 || chunks.len() < count {
            return format!(
                "Failed to fulfill the requested SM partition of {count} chunks, \
                 error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n"
            );
        }
        self.made += 1;
        // Names in the field hold slashes of their own.
        let name = format!("D/{:A<33}", format!("{}x", self.made));
        self.given.push(Partition { name: name.clone(), chunks });
        format!("Partition {device}/{name} created\n")
    }

    /// `sm_partition rm`. `clients`: the whole names that running clients gave.
    ///
    /// # Errors
    /// A sentence: there is none, or it has clients.
    pub fn remove(&mut self, device: &str, name: &str, clients: &[String]) -> Result<String, String> {
        let place = self.given.iter().position(|it| it.name == name).filter(|_| device == self.device);
        let place = place.ok_or(format!("Partition {device}/{name} not found"))?;
        if clients.contains(&format!("{device}/{name}")) {
            return Err(format!("Partition {device}/{name} has clients"));
        }
        self.given.remove(place);
        Ok(String::new())
    }

    /// `lspart`, with the UUID cut short as everywhere in tables.
    pub fn table(&self, clients: &[String]) -> String {
        let device = self.device.split_once('-').map_or("", |(_, rest)| rest);
        let device = format!("GPU-{}", device.chars().take(8).collect::<String>());
        let free = u32::try_from(self.free().count()).unwrap_or(u32::MAX);
        let used = self.units / CHUNK_UNITS - free;
        let mut text = "GPU           Partition  free   used   free  used  clients\n\
                        \x20                        chunk  chunk  SM    SM\n"
            .to_owned();
        let units = used * CHUNK_UNITS;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{device}  -  {free}  {used}  {}  {units}  -", self.units - units);
        for Partition { name, chunks } in &self.given {
            let is_used = clients.contains(&format!("{}/{name}", self.device));
            let is_used = if is_used { "Yes" } else { "No" };
            let units = chunks.len() * CHUNK_UNITS as usize;
            let _ = writeln!(text, "{device}  {name}  -  {}  -  {units}  {is_used}", chunks.len());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "GPU-cb1213a3-d6a4-be7f";

    #[test]
    fn chunks_are_given_once_and_come_back() {
        let mut partitions = Partitions::new(DEVICE, 132);
        let first = partitions.add(DEVICE, 10);
        let name = first.strip_prefix("Partition ").unwrap().strip_suffix(" created\n").unwrap();
        assert!(partitions.is_known(name) && !partitions.is_known("GPU-1/D"));
        assert!(
            partitions.add(DEVICE, 7).contains("7 chunks, error CUDA_ERROR_INVALID_RESOURCE"),
            "6 are left"
        );
        assert!(
            partitions.add("GPU-other", 1).starts_with("Failed")
                && partitions.add(DEVICE, 0).starts_with("Failed")
        );
        assert!(partitions.table(&[]).contains("GPU-cb1213a3  -  6  10  52  80  -\n"));
        let short = name.split_once('/').unwrap().1;
        let client = [name.to_owned()];
        assert!(partitions.table(&client).ends_with(&format!("{short}  -  10  -  80  Yes\n")));
        assert!(partitions.remove(DEVICE, short, &client).unwrap_err().contains("has clients"));
        assert!(partitions.remove(DEVICE, "D", &[]).unwrap_err().contains("not found"));
        partitions.remove(DEVICE, short, &[]).unwrap();
        assert!(partitions.add(DEVICE, 16).starts_with("Partition"));
    }
}

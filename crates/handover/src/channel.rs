//! A pair of connected sockets for values and descriptors.
//!
//! Both ends belong to one user on one machine, and no other process can open them. A message is its length and the number of its
//! descriptors, which travel with that, and then its bytes. Reading and writing block.

use crate::record::{decode, encode};
use rustix::cmsg_space;
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most descriptors of one message: the kernel takes 253 (SCM_MAX_FD of unix(7)).
pub const MAX_DESCRIPTORS: usize = 250;
/// Longest message, bytes: a configuration of a million users is some hundred MB.
const MAX_MESSAGE: u64 = 1 << 30;
/// Bytes in front of each message.
const HEADER: usize = 12;

/// The end that writes.
#[derive(Debug)]
pub struct Outlet(UnixStream);

/// The end that reads.
#[derive(Debug)]
pub struct Inlet(UnixStream);

/// The descriptors that came with a value.
#[derive(Debug)]
pub struct Descriptors {
    arrived: Vec<OwnedFd>,
    sent: usize,
}

impl Descriptors {
    /// All that were sent.
    ///
    /// # Errors
    /// Not all have arrived, and those that have are closed.
    pub fn all(self) -> Result<Vec<OwnedFd>, String> {
        if self.arrived.len() == self.sent {
            Ok(self.arrived)
        } else {
            Err(format!("{} of {} descriptors arrived: raise the limit of open files", self.arrived.len(), self.sent))
        }
    }
}

/// Both ends of one side of a connection.
///
/// # Errors
/// The system's words.
pub fn pair(socket: UnixStream) -> io::Result<(Inlet, Outlet)> {
    Ok((Inlet(socket.try_clone()?), Outlet(socket)))
}

impl Outlet {
    /// Sends a value and copies of these descriptors.
    ///
    /// # Errors
    /// The other side is gone, does not read within the limit, or the value cannot be written.
    pub fn send<T: Serialize>(&mut self, value: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = encode(value).map_err(io::Error::other)?;
        if descriptors.len() > MAX_DESCRIPTORS || bytes.len() as u64 > MAX_MESSAGE {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message is too long"));
        }
        let mut head = [0; HEADER];
        head[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        head[8..].copy_from_slice(&(descriptors.len() as u32).to_le_bytes());
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there are too many descriptors"));
        }
        let sent = loop {
            match net::sendmsg(&self.0, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => break sent?,
            }
        };
        // The descriptors went with its first byte.
        self.0.write_all(head.get(sent..).unwrap_or_default())?;
        self.0.write_all(&bytes)
    }

    /// How long a send may wait for the other side to read.
    ///
    /// # Errors
    /// The system's words.
    pub fn limit(&self, limit: Duration) -> io::Result<()> {
        self.0.set_write_timeout(Some(limit))
    }
}

impl Inlet {
    /// Waits for the next value; None at the end of the connection. Descriptors may be missing where this process has too many open.
    ///
    /// # Errors
    /// The other side broke off within a message, or the value is none that this program knows.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Descriptors)>> {
        let mut head = [0; HEADER];
        let Some((read, descriptors)) = self.begin(&mut head)? else { return Ok(None) };
        self.0.read_exact(head.get_mut(read..).unwrap_or_default())?;
        let [len @ .., _, _, _, _] = head;
        let [.., a, b, c, d] = head;
        let (len, count) = (u64::from_le_bytes(len), u32::from_le_bytes([a, b, c, d]));
        if len > MAX_MESSAGE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let mut bytes = Vec::new();
        (&self.0).take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let value = decode(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        Ok(Some((value, Descriptors { arrived: descriptors, sent: count as usize })))
    }

    /// The first bytes of a message, with its descriptors. Those that did not fit this process's table are missing.
    fn begin(&mut self, head: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match net::recvmsg(self.0.as_fd(), &mut [IoSliceMut::new(head)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                // It ended without reading all.
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                received => break received?,
            }
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        Ok((received.bytes > 0).then_some((received.bytes, descriptors)))
    }

    /// How long a receive may wait.
    ///
    /// # Errors
    /// The system's words.
    pub fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    #[test]
    fn values_and_descriptors_arrive_together_and_in_order() {
        let (near, far) = UnixStream::pair().unwrap();
        let ((_, mut outlet), (mut inlet, _)) = (pair(near).unwrap(), pair(far).unwrap());
        let files: Vec<_> = (0..MAX_DESCRIPTORS).map(|_| tempfile::tempfile().unwrap()).collect();
        for (n, mut file) in files.iter().enumerate() {
            write!(file, "{n}").unwrap();
        }
        let long = "x".repeat(3 << 20);
        let writer = std::thread::spawn(move || {
            let all: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            outlet.send(&("all".to_owned(), 1), &all).unwrap();
            outlet.send(&(long, 2), &[]).unwrap();
            outlet.send(&("one".to_owned(), 3), &all[7..8]).unwrap();
        });
        let mut next = || inlet.receive::<(String, u32)>().unwrap().map(|(value, descriptors)| (value, descriptors.all().unwrap()));
        let read = |descriptor: &OwnedFd| {
            let mut file = std::fs::File::from(descriptor.try_clone().unwrap());
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        let ((text, number), all) = next().unwrap();
        assert_eq!((text.as_str(), number, all.len()), ("all", 1, MAX_DESCRIPTORS));
        assert!(all.iter().enumerate().all(|(n, descriptor)| read(descriptor) == n.to_string()));
        let ((text, number), none) = next().unwrap();
        assert_eq!((text.len(), number, none.len()), (3 << 20, 2, 0));
        let ((_, number), one) = next().unwrap();
        assert_eq!((number, read(&one[0])), (3, "7".to_owned()));
        writer.join().unwrap();
        assert!(next().is_none());
    }

    #[test]
    fn what_is_cut_off_or_foreign_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut inlet, _) = pair(far).unwrap();
        let mut raw = near;
        raw.write_all(&[5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]).unwrap();
        drop(raw);
        assert!(inlet.receive::<u32>().is_err());
        let (near, far) = UnixStream::pair().unwrap();
        let ((_, mut outlet), (mut inlet, _)) = (pair(near).unwrap(), pair(far).unwrap());
        outlet.send(&"text", &[]).unwrap();
        outlet.send(&7, &[]).unwrap();
        assert!(inlet.receive::<u32>().is_err());
        assert_eq!(inlet.receive::<u32>().unwrap().unwrap().0, 7, "the next one is whole");
    }
}

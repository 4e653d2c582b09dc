//! Connections and tunnels.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::client::*;

#[test]
fn connections_carry_bytes_both_ways_until_their_listener_is_closed() {
    each(|client| {
        client.send(9, 500, &0u16.to_le_bytes());
        let opened = client.next_of(500);
        assert_eq!(opened.kind, OPENED);
        let mut peer = TcpStream::connect(("127.0.0.1", u16::from_le_bytes([opened.body[0], opened.body[1]]))).unwrap();
        let id = u32_at(&client.next_of(500).body, 0);
        // Both ways, half-closed in between, more than a window.
        let echo = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            peer.write_all(&all).unwrap();
        });
        client.credit(id, 0, 64 * 1024);
        let mut allowed = u32_at(&client.hello.body, 22);
        for number in 0..32u8 {
            while allowed < 65536 {
                let frame = client.next_of(id);
                assert_eq!(frame.kind, CREDIT);
                allowed += u32_at(&frame.body, 1);
            }
            client.data(id, &[number; 65536]);
            allowed -= 65536;
        }
        client.send(4, id, &[0]);
        let mut back = Vec::new();
        loop {
            let frame = client.next_of(id);
            match frame.kind {
                DATA => {
                    back.extend_from_slice(&frame.body[1..]);
                    client.credit(id, 0, frame.body.len() as u32 - 1);
                }
                CLOSED => break,
                _ => {}
            }
        }
        echo.join().unwrap();
        assert!(
            back.len() == 32 * 65536
                && back.chunks(65536).enumerate().all(|(at, chunk)| chunk.iter().all(|byte| *byte == at as u8))
        );
        // Two connections, one refused after the listener is closed.
        client.send(9, 600, &0u16.to_le_bytes());
        let opened = client.next_of(600);
        assert_eq!(opened.kind, OPENED);
        let port = u16::from_le_bytes([opened.body[0], opened.body[1]]);
        for _ in 0..2 {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let accepted = client.next_of(600);
            assert_eq!(accepted.kind, ACCEPTED);
            let id = u32_at(&accepted.body, 0);
            assert!(id >> 31 == 1);
            peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            client.credit(id, 0, 4096);
            let frame = client.next_of(id);
            assert_eq!((frame.kind, &frame.body[1..]), (DATA, &b"GET / HTTP/1.1\r\n\r\n"[..]));
            client.data(id, b"HTTP/1.1 204 No Content\r\n\r\n");
            client.send(4, id, &[0]);
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 204"));
            drop(peer);
            while client.next_of(id).kind != CLOSED {}
        }
        client.send(10, 600, &[]);
        assert_eq!(client.next_of(600).kind, CLOSED);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    });
}

pub fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn adds() {
        assert_eq!(super::add(2, 3), 5);
    }

    #[test]
    fn a_server_on_the_loopback_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(b"pong").unwrap());
        let mut answer = String::new();
        TcpStream::connect(address).unwrap().read_to_string(&mut answer).unwrap();
        server.join().unwrap();
        assert_eq!(answer, "pong");
    }
}

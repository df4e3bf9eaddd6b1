fn main() {
    println!("2 + 3 = {}", developer_project::add(2, 3));
}

// First in, first out.
export class Queue {
  items = [];

  add(item) {
    this.items.push(item);
    return this;
  }

  take() {
    return this.items.shift();
  }

  get size() {
    return this.items.length;
  }
}

// Smaller numbers come first; equal ones in the order in which they were added.
export class PriorityQueue extends Queue {
  add(item, priority = 0) {
    let at = this.items.length;
    while (at > 0 && this.items[at - 1].priority > priority) at -= 1;
    this.items.splice(at, 0, { item, priority });
    return this;
  }

  take() {
    return super.take()?.item;
  }
}

import { PriorityQueue } from "../queue.js";

const queue = new PriorityQueue();
queue.add("later", 5).add("now").add("soon", 1);
console.log(queue.take(), queue.take(), queue.take(), queue.size);

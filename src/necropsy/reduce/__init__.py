"""``necropsy reduce``: cuts a program that dies natively down to what the death needs."""

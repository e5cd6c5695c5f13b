mod mistakes;
